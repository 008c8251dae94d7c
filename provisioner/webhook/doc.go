// Package webhook delivers events to operators' endpoints: each as an HTTPS POST
// of its CloudEvent, signed by the Standard Webhooks scheme
// (https://www.standardwebhooks.com), until the endpoint has taken it.
//
// # What is promised
//
// An event is delivered at least once, whatever is killed on the way: the log of
// events keeps what is not settled (package store), and any provisioner goes on
// with it. What is tried again has the same webhook-id and another
// webhook-timestamp. Events may overtake each other.
//
// # What is not
//
// An event that its endpoint has not taken for [DefaultSchedule].Total is given
// up: counted, logged, and an alarm. Nothing here is on the way of an enrollment,
// and each webhook waits for its own endpoint only.
//
// # Trust
//
// TLS is always verified, redirects are not followed, and of an answer no more
// than a kilobyte is kept. What may be secret in a URL, all but scheme and host,
// is in no log and no error.
package webhook
