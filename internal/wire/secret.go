package wire

import "log/slog"

// Secret is text that must not reach a log or error message. Printing shows only whether it is empty.
//
// slog's JSON handler encodes a struct's Secret fields with their text: such structs need a LogValue.
type Secret string

// LogValue implements [slog.LogValuer].
func (s Secret) LogValue() slog.Value { return slog.StringValue(s.String()) }

// String implements [fmt.Stringer].
func (s Secret) String() string {
	if s == "" {
		return "(empty)"
	}
	return "(secret)"
}

// GoString implements [fmt.GoStringer].
func (s Secret) GoString() string { return s.String() }
