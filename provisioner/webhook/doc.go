// Package webhook delivers events to operators' endpoints: an HTTPS POST of each CloudEvent, signed by the Standard
// Webhooks scheme (https://www.standardwebhooks.com), until the endpoint accepts it.
//
// An event is delivered at least once, even if processes are killed: any provisioner can deliver an event that is not
// settled. A retry has the same webhook-id. Events may arrive out of order. After [DefaultSchedule].Total an event is
// given up, with an alarm.
//
// Redirects are not followed. Logs and errors show only the scheme and host of a URL.
package webhook
