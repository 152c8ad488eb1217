"""What is typed into the forms of the console, and what is made of it."""
