"""Jobs described in files: job.toml, flow.toml, scripts with directives, Kestrel's job files.

    which        which kind a file is; read_file, the door to all this
    toml         job.toml                             -+
    flow         flow.toml: steps, needs, cycles       |
    script       job.sh: #TERCEL and (sbatch) #SBATCH  +-> Words -> drafts -> Draft (a Submission)
    kestrel      Kestrel's [job]                      -+
    keys         the table of keys and options; kinds: what a value may be; schema: the same for editors
    sources      where something was written; places: lines of a TOML file
    options      options on a line; after: dependencies and retry rules as text
    sweeps, items, lines, directories   what else is read from the user's machine

Nothing here talks to a manager. Whatever is wrong is a UsageError that names file, line and key.
"""

from tercel.sdk.files.drafts import Draft as Draft
from tercel.sdk.files.which import is_job_file as is_job_file
from tercel.sdk.files.which import read_file as read_file
