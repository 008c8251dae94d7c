package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"muster/internal/wire"
)

// subjectProvisioner is where a provisioner says that it writes to the store.
const subjectProvisioner = "muster.entry.provisioner."

// notedProvisioner is what the store knows of a provisioner.
type notedProvisioner struct {
	Name  wire.Identity `json:"name"`
	Since time.Time     `json:"since"`
}

// NoteProvisioner writes down, once, that a provisioner of this name writes to
// the store: what it has spent since a backup is in a journal of its own. It
// must be called before the provisioner serves. After an error it may be written
// or not; calling it again is harmless.
func (s *Store) NoteProvisioner(ctx context.Context, name wire.Identity, now time.Time) error {
	subject := subjectProvisioner + name.SubjectToken()
	var found notedProvisioner
	_, err := s.last(ctx, s.entries, subject, &found)
	if err == nil {
		return nil
	}
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		_, err = s.append(ctx, subject, notedProvisioner{name, now.UTC().Truncate(time.Second)}, wire.NewID())
	}
	if err != nil {
		return fmt.Errorf("note provisioner %s: %w", name, err)
	}
	return nil
}

// ProvisionerOf returns the name of a provisioner that a message of a backup
// notes, empty if it notes none.
func ProvisionerOf(subject string, data []byte) string {
	var n notedProvisioner
	if !strings.HasPrefix(subject, subjectProvisioner) || json.Unmarshal(data, &n) != nil {
		return ""
	}
	return string(n.Name)
}
