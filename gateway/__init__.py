"""The door for people: the command line and `longshore up`. HTTP and the console come in through here too."""
