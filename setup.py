"""What pyproject.toml cannot say: an installed package brings the YAML of configs/ inside itself."""

from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py


class BuildWithConfigurations(build_py):
    """Copies ``configs/`` to ``torchrl_agent/configs/``, where no other folder of that name can hide it. An editable
    install reads them where people edit them.
    """

    def run(self) -> None:
        super().run()
        if self.editable_mode:
            return
        for source in sorted(Path("configs").rglob("*.yaml")):
            target = Path(self.build_lib, "torchrl_agent", source)
            self.mkpath(str(target.parent))
            self.copy_file(str(source), str(target))


setup(cmdclass={"build_py": BuildWithConfigurations})
