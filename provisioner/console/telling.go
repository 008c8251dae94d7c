package console

import (
	"fmt"
	"strings"

	"muster/provisioner"
)

// eventTones says how events are to be taken. What is not here is calm.
var eventTones = map[provisioner.EventType]string{
	provisioner.EventEnrolled: "good", provisioner.EventRenewed: "good", provisioner.EventProvisioned: "good", provisioner.EventAlarmCleared: "good",
	provisioner.EventApproved: "good", provisioner.EventServerProvisioned: "good", provisioner.EventResumed: "good",
	provisioner.EventRefused: "warn", provisioner.EventCommanded: "warn", provisioner.EventShadowDiffers: "warn", provisioner.EventTokenThawed: "warn", provisioner.EventPaused: "warn",
	provisioner.EventRetireLeftOut: "warn",
	provisioner.EventAttempt:       "bad", provisioner.EventLoginRefused: "bad", provisioner.EventAlarmRaised: "bad", provisioner.EventPolicyRefused: "bad",
	provisioner.EventCloned: "bad", provisioner.EventRevoked: "bad", provisioner.EventTokenRevoked: "bad", provisioner.EventRejected: "bad",
}

// whatOf says in a few words what an event tells besides its type and its node.
func whatOf(t *told) string {
	d := &t.Data
	var parts []string
	for _, p := range []struct{ format, value string }{
		{"%s", string(d.Verb)},
		{"%s", string(d.Code)},
		{"ground: %s", string(d.Reason)},
		{"operator %s", d.Operator},
		{"role %s", string(d.Role)},
		{"names %s", string(d.Pattern)},
		{"%s", strings.TrimRight(d.Cause, ": ")},
		{"from %s", d.Source},
		{"by %s", strings.TrimPrefix(d.By, "operator:")},
		{"“%s”", d.Why},
	} {
		if p.value != "" {
			parts = append(parts, fmt.Sprintf(p.format, p.value))
		}
	}
	if d.LeftOut > 0 {
		parts = append(parts, fmt.Sprintf("and %d more", d.LeftOut))
	}
	if d.Repeated {
		parts = append(parts, "again")
	}
	if len(parts) == 0 && d.Policy != "" {
		parts = append(parts, "policy "+short(d.Policy))
	}
	return strings.Join(parts, " · ")
}
