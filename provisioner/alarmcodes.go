package provisioner

import "muster/internal/wire"

// AlarmCodes are the codes of all alarms; docs/operations.md says of each what
// to do.
var AlarmCodes = []wire.Code{
	wire.CodeStorageLow, wire.CodeStoreUnavailable, wire.CodeRevocationsUnknown, wire.CodeClockBehind, AlarmClockJumped,
	wire.CodeAuthorityExpired, wire.CodePolicyFailed,
}
