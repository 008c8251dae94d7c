package wire

import "strings"

// tokenMark stands between whose a connection is and its token. No identity has it, and no
// name of a sealed session.
const tokenMark = "/"

// UserWithToken returns what a connection with a token is called as a user of NATS, at a
// broker outside of the process. The broker reports that of each request and of each
// connection, so any provisioner learns from it which token a connection came with.
func UserWithToken(name, token string) string { return name + tokenMark + token }

// SplitUser returns whose a connection with this user is, and the id of its token: "" if the broker
// was not told.
func SplitUser(user string) (name, token string) {
	name, token, _ = strings.Cut(user, tokenMark)
	return name, token
}
