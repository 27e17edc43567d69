"""What is done with the package: experiments, costs, fine-tuning, evaluation, export, a capstone.

It knows `llmcourse`, which knows nothing of it, and nothing of the classroom.
"""
