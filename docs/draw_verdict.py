"""Draw docs/verdict.svg: `python docs/draw_verdict.py` grades a transpose whose tile has bank conflicts."""

import io
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.text import Text

sys.path.insert(0, str(Path(__file__).parents[1]))
from kernelpath.course import registry
from tests import planted

SUBMISSION = "w03c_transpose/TOO_MUCH_TRAFFIC_unpadded_tile"
COLUMNS = 106


def main() -> None:
    root = registry.root()
    (submission,) = [wrong for wrong in planted.rejects(root, "cpu") if wrong.name == SUBMISSION]
    exercise = registry.find("transpose")
    with tempfile.TemporaryDirectory() as folder:
        planted_file = submission.submission(Path(folder))
        file = Path(folder, exercise.stub.relative_to(root))
        file.parent.mkdir(parents=True)
        for suffix in (".py", ".cu"):
            source = planted_file.with_suffix(suffix).read_text()
            file.with_suffix(suffix).write_text(source.replace("plain.cu", f"{file.stem}.cu"))
        command = [sys.executable, "-m", "kernelpath.cli", "check", "--file", str(file), "transpose"]
        environment = {**os.environ, "FORCE_COLOR": "1", "COLUMNS": str(COLUMNS)}
        graded = subprocess.run(  # its progress goes to stderr
            [*command, "--device", "cpu"], env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
    output = graded.stdout.replace(f"{folder}/", "")
    console = Console(record=True, width=COLUMNS, file=io.StringIO())
    console.print(Text.from_ansi(f"$ kp check transpose\n{output.rstrip()}"))
    console.save_svg(str(root / "docs" / "verdict.svg"), title="kernelpath", clear=False)


if __name__ == "__main__":
    main()
