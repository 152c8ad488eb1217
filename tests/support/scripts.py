"""Scripts of the `scripted` provider that several tests play."""

QUESTION_SCRIPT = """
- play:
    - tool: ask_user_question
      with: {title: Tea, question: "Now or later?", options: [Now, Later], timeout: 900}
    - answer: "So: {result}"
"""
TWO_CALLS_SCRIPT = """
- play:
    - think: hm
    - tool: clock
    - say: on the way
    - tool: clock
    - answer: done
"""
