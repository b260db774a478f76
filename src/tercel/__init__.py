"""Tercel runs very many tasks on whatever machines a group can reach, and never loses one.

Layers, top to bottom (a layer imports only what stands below it; import-linter checks):

    cli                         what people see
    sdk                         the one door the faces use
    wiring                      the one place that chooses adapters
    manager   worker            services: move messages, commit, perform effects
    stores    links    runners  adapters: one family per kind of outside thing
    wire                        the messages between processes, versioned
    core                        the rules: pure
"""

__version__ = "0.1.0"
