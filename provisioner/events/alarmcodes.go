package events

import (
	"slices"

	"muster/internal/wire"
)

// AlarmWebhookFailed is the code of the alarm that a webhook's endpoint takes no
// events. It refuses nothing.
const AlarmWebhookFailed wire.Code = "webhook_failed"

// AlarmBrokersMisconfigured is the code of the alarm that brokers outside of the process ask with other keys than ours.
// It refuses nothing by itself.
const AlarmBrokersMisconfigured wire.Code = "brokers_misconfigured"

// AlarmRecovery stands while the store is in recovery. It refuses nothing by itself.
const AlarmRecovery wire.Code = "in_recovery"

// AlarmEntryUnread is the code of the alarm that an order of an operator is in the store and
// cannot be read. It lets in nothing, and refuses nothing else.
const AlarmEntryUnread wire.Code = "entry_unread"

// AlarmCodes are the codes of all alarms; docs/runbook.md says of each what
// to do.
var AlarmCodes = []wire.Code{
	wire.CodeStorageLow, wire.CodeStoreUnavailable, wire.CodeRevocationsUnknown, wire.CodeClockBehind, AlarmClockDiffers,
	wire.CodeAuthorityExpired, wire.CodePolicyFailed, AlarmPolicyRefused, AlarmAllowsAll, AlarmWebhookFailed,
	AlarmBrokersMisconfigured, AlarmEntryUnread, AlarmRecovery, wire.CodePaused,
}

// alarmRemedies are for alarms whose codes refuse nobody.
var alarmRemedies = map[wire.Code]string{
	AlarmClockDiffers:         "set the clock of the provisioner's machine right, or that of the NATS servers",
	AlarmPolicyRefused:        "mend the policy's files, or put those before back: `muster policy test` says what is wrong with them",
	AlarmAllowsAll:            "`muster allow remove '*'`: until then the holder of any token gets in under any free name",
	AlarmWebhookFailed:        "`muster webhook list` says what its endpoint answers, `muster webhook test` tries it",
	AlarmBrokersMisconfigured: "give all provisioners the same files in `cluster`, and all servers the `auth_callout` that `muster broker config` prints; the cause says what is wrong",
	AlarmEntryUnread:          "give the order again with this version of muster, which replaces the entry; or run the version that wrote it",
	AlarmRecovery:             "once the fleet is back, `muster recovery end`; approve names that have no certificate with their keys; `muster token unfreeze` gives a limited token the uses that it has left",
}

// Codes returns the codes that events have: of refusals, and of alarms.
func Codes() []wire.Code {
	var all []wire.Code
	for _, m := range wire.Codes {
		all = append(all, m.Code)
	}
	for _, c := range AlarmCodes {
		if !slices.Contains(all, c) {
			all = append(all, c)
		}
	}
	return all
}

// AlarmRemedy says what to do about an alarm, for operators.
func AlarmRemedy(code wire.Code) string {
	if remedy, ok := alarmRemedies[code]; ok {
		return remedy
	}
	return wire.MeaningOf(code).Remedy
}
