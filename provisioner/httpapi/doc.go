// Package httpapi is the operators' edge: HTTP over a Unix socket in the
// provisioner's data directory, HTTPS for operators on other machines if it is
// configured, and the client for both. `muster token`,
// `muster signer`, `muster node` and their like speak it.
//
// # Trust
//
// Who can open the socket may do everything: it has mode 0600 in a directory of
// mode 0700, so that is the provisioner's own user and root. Whoever it is, the
// kernel says by which user's process the connection was opened, and that name
// goes into the events and the history of whatever it changes. Nothing in a
// request is believed about its sender.
//
// Over HTTPS it is the operator's certificate or token that says who asks, anew
// with each request, and their role what they may: each route names the role that
// it needs, and openapi.yaml lists them.
//
// # Form
//
// Requests and answers are JSON, decoded strictly on the way in. Errors are
// problem documents (RFC 9457) with the code of package wire where there is
// one. Nothing secret is in an answer: no token text, no key, no pushed value.
package httpapi
