package provisioner

import "muster/internal/wire"

// AlarmWebhookFailed is the code of the alarm that a webhook's endpoint takes no
// events. It refuses nothing.
const AlarmWebhookFailed wire.Code = "webhook_failed"

// AlarmCodes are the codes of all alarms; docs/operations.md says of each what
// to do.
var AlarmCodes = []wire.Code{
	wire.CodeStorageLow, wire.CodeStoreUnavailable, wire.CodeRevocationsUnknown, wire.CodeClockBehind, AlarmClockJumped,
	wire.CodeAuthorityExpired, wire.CodePolicyFailed, AlarmPolicyRefused, AlarmAllowsAll, AlarmWebhookFailed, wire.CodePaused,
}
