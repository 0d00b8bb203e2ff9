"""Are these files what their programs read? For `test_deploy_examples`, in an environment of its
own (group `deploy`).

    python published_schemas.py COMPOSE_FILE MANIFEST…

Says each mistake on a line, and ends with 1 if there is one.
"""

import sys
from pathlib import Path

import compose_spec
import kubernetes_validate
import yaml

KUBERNETES = "1.37"
OWN = {"Kustomization"}
"""Read by kustomize itself, not by the cluster."""


def mistakes(compose: Path, manifests: list[Path]) -> list[str]:
    found: list[str] = []
    try:
        whole = yaml.safe_dump(
            yaml.safe_load(compose.read_text(encoding="utf-8"))
        )  # with what `<<` refers to in place
        compose_spec.PyCompose.from_yaml(whole)
    except ValueError as error:
        found.append(f"{compose.name}: {error}")
    for file in manifests:
        for manifest in yaml.safe_load_all(file.read_text(encoding="utf-8")):
            if manifest["kind"] in OWN:
                continue
            try:
                kubernetes_validate.validate(manifest, KUBERNETES, strict=True)
            except kubernetes_validate.ValidationError as error:
                found.append(
                    f"{file.name}: {manifest['kind']}: {'.'.join(map(str, error.path))}: "
                    f"{error.message}"
                )
    return found


if __name__ == "__main__":
    said = mistakes(Path(sys.argv[1]), [Path(name) for name in sys.argv[2:]])
    sys.stdout.write("".join(f"{line}\n" for line in said))
    sys.exit(1 if said else 0)
