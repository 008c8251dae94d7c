// Package httpapi is the operators' edge: HTTP over a Unix socket in the provisioner's data directory, HTTPS for
// operators on other machines if configured, and the client for both.
//
// The socket gives every right. It has mode 0600 in a directory of mode 0700, so only root and the provisioner's own
// user can open it. Events and history name the user that the kernel reports for the connection.
//
// Over HTTPS each request is authenticated by the operator's certificate or token, and each route requires a role;
// openapi.yaml lists them.
//
// Requests and answers are JSON; requests are decoded strictly. Errors are problem documents (RFC 9457). No answer
// holds a secret: no token text, no key, no pushed value.
package httpapi
