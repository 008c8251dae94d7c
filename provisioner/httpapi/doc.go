// Package httpapi is the operators' API: HTTP over a Unix socket in the provisioner's data directory, HTTPS for
// operators on other machines, and the client for both.
//
// The socket gives every right to root and the provisioner's own user. Over HTTPS each request is authenticated by
// certificate or token, and each route requires a role; openapi.yaml lists them.
//
// Requests are decoded strictly. Errors are problem documents (RFC 9457). No answer holds a secret.
package httpapi
