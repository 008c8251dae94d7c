package wire

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"
)

// Limits on pushed files. [MaxReplyBytes] has room for these, a certificate
// chain, and JSON's escaping.
const (
	MaxFilesBytes   = 192 << 10 // all keys, names and contents together
	MaxSettingKey   = 128
	MaxPolicyName   = 64
	maxFilesEntries = 4096
)

// ErrFiles means that files could not be written on a node as they are.
var ErrFiles = errors.New("not a valid set of files")

// Check reports all that keeps f from being written on a node: no settings at
// all, a setting that a `key = value` line cannot hold, a policy whose name is
// no plain file name, or too much of it. Both sides run it: the provisioner
// before it records anything, the server before it touches its disk. The error
// wraps [ErrFiles] and prints no value.
func (f Files) Check() error {
	var errs []error
	bad := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("%w: %s", ErrFiles, fmt.Sprintf(format, args...)))
	}
	if len(f.Configuration) == 0 {
		bad("no configuration: a node needs at least one setting")
	}
	size, entries := 0, 0
	for _, k := range slices.Sorted(maps.Keys(f.Configuration)) {
		v := f.Configuration[k]
		size, entries = size+len(k)+len(v), entries+1
		if !ValidSettingKey(k) {
			bad("setting %.140q: want 1 to %d of a-z, A-Z, 0-9, _, . and -", k, MaxSettingKey)
		}
		if !validValue(v) {
			bad("setting %q: its value has a line break, a control character, a blank at its end or invalid UTF-8", k)
		}
	}
	for kind, policies := range map[string]map[string]string{"action policy": f.ActionPolicies, "OPA policy": f.OPAPolicies} {
		for _, name := range slices.Sorted(maps.Keys(policies)) {
			size, entries = size+len(name)+len(policies[name]), entries+1
			if !ValidPolicyName(name) {
				bad("%s %.80q: want 1 to %d of a-z, A-Z, 0-9, _, . and -, not beginning with a dot", kind, name, MaxPolicyName)
			}
			if !validText(policies[name]) {
				bad("%s %q: a control character other than tab and line break, or invalid UTF-8", kind, name)
			}
		}
	}
	if size > MaxFilesBytes {
		bad("%d bytes in all, limit %d", size, MaxFilesBytes)
	}
	if entries > maxFilesEntries {
		bad("%d entries in all, limit %d", entries, maxFilesEntries)
	}
	return errors.Join(errs...)
}

const nameChars = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-"

// ValidSettingKey reports whether k can be a key of server.conf.
func ValidSettingKey(k string) bool {
	return k != "" && len(k) <= MaxSettingKey && strings.Trim(k, nameChars) == ""
}

// ValidPolicyName reports whether name can name a policy file: one plain file
// name, so that no provisioner writes outside the directory of policies.
func ValidPolicyName(name string) bool {
	return name != "" && len(name) <= MaxPolicyName && name[0] != '.' && strings.Trim(name, nameChars) == ""
}

// validText reports whether s is text of several lines.
func validText(s string) bool {
	return utf8.ValidString(s) && strings.IndexFunc(s, func(r rune) bool { return r < 0x20 && r != '\t' && r != '\n' && r != '\r' }) < 0
}

// validValue reports whether v survives a `key = value` line.
func validValue(v string) bool {
	if !utf8.ValidString(v) || strings.TrimSpace(v) != v {
		return false
	}
	for _, r := range v {
		if r < 0x20 || r == 0x7f || r == '\u0085' || r == '\u2028' || r == '\u2029' || r == '\ufeff' {
			return false
		}
	}
	return true
}
