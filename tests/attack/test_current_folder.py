"""Nothing of the current folder runs, whatever its files are called."""

from attack import current_folder
from attack.playground import COMMANDS, verbs


def test_the_commands_of_the_playground_are_verbs() -> None:
    assert set(COMMANDS) <= set(verbs()) and len(COMMANDS) >= 45


def test_canaries_of_the_current_folder_stay_silent() -> None:
    for count in current_folder.attack(0, 1):
        count.assert_none_failed()
    assert len(current_folder.MODULES) >= 50
