# Roles by Open Policy Agent: docs/security.md, "A policy of your own".
#
#     opa run --server --addr 127.0.0.1:8181 deploy/policy/laketx.rego
#     laketx serve --policy-url http://127.0.0.1:8181/v1/data/laketx/role …
package laketx

import rego.v1

# The largest role by any of the rules below; without one there is no role.
role := [name | some name in ["admin", "maintainer", "writer", "reader"]; name in granted][0]

# The platform's people may do everything.
granted contains "admin" if "platform" in input.groups

# Whoever is in a team writes the tables of the team's namespace.
granted contains "writer" if input.namespace in input.groups

# Analysts read all tables but those of the namespace `people`.
granted contains "reader" if {
	"analysts" in input.groups
	input.namespace != "people"
}
