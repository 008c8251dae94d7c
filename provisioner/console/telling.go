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
	add := func(format string, args ...any) { parts = append(parts, fmt.Sprintf(format, args...)) }
	if d.Verb != "" {
		add("%s", d.Verb)
	}
	if d.Code != "" {
		add("%s", d.Code)
	}
	if d.Reason != "" {
		add("ground: %s", d.Reason)
	}
	if d.Operator != "" {
		add("operator %s", d.Operator)
	}
	if d.Role != "" {
		add("role %s", d.Role)
	}
	if d.Pattern != "" {
		add("names %s", d.Pattern)
	}
	if d.Cause != "" {
		add("%s", strings.TrimRight(d.Cause, ": "))
	}
	if d.LeftOut > 0 {
		add("and %d more", d.LeftOut)
	}
	if d.Source != "" {
		add("from %s", d.Source)
	}
	if d.By != "" {
		add("by %s", strings.TrimPrefix(d.By, "operator:"))
	}
	if d.Why != "" {
		add("“%s”", d.Why)
	}
	if d.Repeated {
		add("again")
	}
	if len(parts) == 0 && d.Policy != "" {
		add("policy %s", short(d.Policy))
	}
	return strings.Join(parts, " · ")
}
