"""What shows and grades the course: widgets, exercises, quizzes, the grader.

It knows `llmcourse` and `llmcourse_labs`; nothing imports it.
"""
