// Package webhook delivers events to operators' endpoints: an HTTPS POST of each CloudEvent, signed by the Standard
// Webhooks scheme (https://www.standardwebhooks.com), until the endpoint accepts it.
//
// An event is delivered at least once, even if processes are killed: the log of events (package store) keeps unsettled
// events for any provisioner. A retry has the same webhook-id and another webhook-timestamp. Events may arrive out of
// order. After [DefaultSchedule].Total an event is given up, with an alarm. Enrollment never waits for a webhook.
//
// TLS is always verified, and redirects are not followed. Of a URL only scheme and host appear in logs and errors; the
// rest may be secret.
package webhook
