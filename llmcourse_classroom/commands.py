"""The commands of the classroom, by their names; a module is loaded when it is asked for."""

from llmcourse.base.command_line import Command

grade = Command(
    "llmcourse_classroom.grader.batch",
    "grade a folder of submissions",
    "exercises/05_tokens.ipynb submissions/ --out report/ --jobs 2",
)
own = Command(
    "llmcourse_classroom.own.__main__",
    "make a Llama of your own of your answers, train it, grade it",
    "assemble --borrow",
)
progress = Command(
    "llmcourse_classroom.exercises.progress",
    "show how far your exercises are, or take that elsewhere",
    "export mine.json",
)
