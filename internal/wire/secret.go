package wire

import "log/slog"

// Secret is text that must not reach a log or error message, such as a token or password. Printing it shows only
// whether it is empty; string(s) returns the text.
//
// slog's JSON handler encodes a struct that holds a Secret with its text: such structs need a LogValue.
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
