package server

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"muster/internal/wire"
)

// The doctor's checks of what decides whether a node is enrolled: what became
// of the last attempt, what the token asks for, facts, and the place for the
// next set.

// enrollAgain is what to do where only another enrollment helps.
func (d *doctor) enrollAgain() string {
	switch {
	case d.view.foreign != nil:
		return remedyOf(d.view.foreign)
	case d.view.says.No:
		return remedyAllow
	}
	return remedyEnroll
}

// checkEnrollment shows why the last attempt of an agent failed. The record
// exists only as long as the node is not enrolled.
func (d *doctor) checkEnrollment() {
	const what = "enrollment"
	f, err := readFailure(d.at.last)
	switch {
	case err != nil:
		d.say(StatusWarn, what, "remove the file; the agent writes it anew", "record of the last attempt: %v", err)
	case f != nil:
		who := ""
		if f.Identity != d.view.identity {
			who = fmt.Sprintf(" as %q", string(f.Identity))
		}
		remedy := f.Remedy
		if remedy == "" {
			remedy = "see the agent's log"
		}
		if f.WaitsFor != "" {
			// Nothing here is broken, and nobody here can do anything about it.
			d.say(StatusWarn, what, remedy, "waits for %s (%s) since %s%s, asked last at %s",
				f.WaitsFor, f.Code, f.Since.Format(time.RFC3339), who, f.Time.Format(time.RFC3339))
			return
		}
		d.say(StatusFail, what, remedy, "last attempt at %s%s: %s", f.Time.Format(time.RFC3339), who, f.Message)
	case d.view.mode == ModeProvisioning:
		d.say(StatusWarn, what, "start the agent", "not enrolled, and no attempt is on record")
	}
}

// checkTerms checks when, and for whom, a token is good. In normal mode it is
// not needed until the node enrolls again.
func (d *doctor) checkTerms(t *token) {
	const what = "token"
	bad := StatusFail
	if d.view.mode == ModeNormal {
		bad = StatusWarn
	}
	before := len(d.findings)
	now := d.now()
	switch {
	case t.expired(now):
		d.say(bad, what, t.outOfDate(now, d.cfg.Now()), "%s expired at %s", t.file, t.expires.Format(time.RFC3339))
	case t.early(now):
		d.say(bad, what, t.outOfDate(now, d.cfg.Now()), "%s is valid from %s", t.file, t.claims.NotBefore.Format(time.RFC3339))
	}
	if id := d.view.identity; id != "" && !covers(t.limits.Identities, id) {
		d.say(bad, what, "sign a token whose --identity covers the name and replace the file, or give this node a name that it covers",
			"%s is for %s, and this node is %s", t.file, patterns(t.limits.Identities), id)
	}
	if fi, err := os.Stat(t.file); err == nil && fi.Mode().Perm()&0o007 != 0 {
		d.say(StatusWarn, what, "chmod 0600 "+t.file, "%s can be read by every user of this machine (mode %04o)", t.file, fi.Mode().Perm())
	}
	if len(d.findings) == before {
		expiry := "never expires"
		if !t.expires.IsZero() {
			expiry = "expires " + t.expires.Format(time.RFC3339)
		}
		d.say(StatusOK, what, "", "%s, %s, provisions by default: %v, TLS: %v", t.file, expiry, t.byDefault, t.secure)
	}
	d.showLimits(t)
}

// showLimits shows the limits in a token that only a provisioner can judge.
func (d *doctor) showLimits(t *token) {
	var list []string
	if n := t.limits.Uses; n > 0 {
		list = append(list, "uses "+strconv.Itoa(n))
	}
	if len(t.limits.Identities) > 0 {
		list = append(list, "identities "+patterns(t.limits.Identities))
	}
	if t.limits.Site != "" {
		list = append(list, "site "+string(t.limits.Site))
	}
	if key, err := t.sealKey(); t.sealed() && err == nil {
		d.say(StatusOK, "sealing", "", "what is sent to enroll can be read only by who holds the seal key %s", key.ID())
	}
	if len(list) > 0 {
		d.say(StatusOK, "limits", "", "the provisioner has to enforce: %s", strings.Join(list, "; "))
	}
}

// covers reports whether a token with these patterns is for id.
func covers(list []wire.Pattern, id wire.Identity) bool {
	for _, p := range list {
		if p.Match(id) {
			return true
		}
	}
	return len(list) == 0
}

func patterns(list []wire.Pattern) string {
	var texts []string
	for _, p := range list {
		texts = append(texts, string(p))
	}
	return strings.Join(texts, ", ")
}

func (d *doctor) checkFacts(ctx context.Context) {
	const what = "facts"
	file := d.factsFile(d.token, d.view.conf)
	if file == "" {
		return
	}
	found, err := d.lookAtFacts(ctx, file)
	switch {
	case errors.Is(err, ErrMissing), err != nil && d.view.mode == ModeNormal:
		d.say(StatusWarn, what, remedyOf(err), "%v", err)
	case err != nil:
		d.fail(what, fmt.Errorf("the node does not ask without them: %w", err), "")
	default:
		d.say(StatusOK, what, "", "%s, %d bytes, limit %d", file, len(found.json), wire.MaxFactsBytes)
	}
}

// checkWritable tries what the agent does to the directories of its files: the
// next set is made and renamed beside the one in force.
func (d *doctor) checkWritable() {
	const what = "directory"
	dirs := []string{d.at.parent}
	if dir := filepath.Dir(d.at.conf); dir != d.at.parent && dir != d.at.live {
		dirs = append(dirs, dir)
	}
	for _, dir := range dirs {
		if err := tryDirectory(dir); err != nil {
			d.say(StatusFail, what, "the agent makes and renames files there: check owner, mode and mount options, and run this check as the agent's user", "%v", err)
			continue
		}
		d.say(StatusOK, what, "", "%s can be written to", dir)
	}
}

// tryDirectory makes, renames and removes a directory in dir, or in the nearest
// one above that exists: the agent makes those that do not.
func tryDirectory(dir string) error {
	at := dir
	for !exists(at) && at != filepath.Dir(at) {
		at = filepath.Dir(at)
	}
	temp, err := os.MkdirTemp(at, ".muster-doctor-*")
	if err == nil {
		renamed := temp + "-renamed"
		if err = os.Rename(temp, renamed); err == nil {
			temp = renamed
		}
		err = errors.Join(err, os.Remove(temp))
	}
	if err == nil {
		return nil
	}
	// Without the temporary name, which tells nobody anything.
	var path *fs.PathError
	var link *os.LinkError
	switch {
	case errors.As(err, &path):
		err = path.Err
	case errors.As(err, &link):
		err = link.Err
	}
	return fmt.Errorf("cannot write to %s: %w", at, err)
}
