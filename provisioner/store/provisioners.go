package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"muster/provisioner"
)

// Where the store notes who writes to it. Earlier versions wrote an entry for
// each, which are read in backups.
const (
	subjectProvisioners = "muster.entry.provisioners"
	subjectProvisioner  = "muster.entry.provisioner."
)

// A NotedProvisioner is what the store knows of a provisioner. What it has written
// since a backup is in a journal of its own.
type NotedProvisioner struct {
	Name    string    `json:"name"`
	Journal string    `json:"journal"` // id of the journal that it writes
	Since   time.Time `json:"since"`   // when it began that one

	// Witness is the provisioner that has it in its own journal, empty if there
	// was no other.
	Witness string `json:"witness,omitempty"`
}

// provisioners is the list in the store.
type provisioners struct {
	List []NotedProvisioner `json:"list"`
}

// Provisioners returns all provisioners that are noted, and the revision for
// [Store.NoteProvisioners]: 0 before the first is.
func (s *Store) Provisioners(ctx context.Context) ([]NotedProvisioner, provisioner.Revision, error) {
	var found provisioners
	revision, err := s.last(ctx, s.entries, subjectProvisioners, &found)
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return nil, 0, nil
	}
	if err != nil {
		return nil, 0, fmt.Errorf("read provisioners: %w", err)
	}
	return found.List, provisioner.Revision(revision), nil
}

// NoteProvisioners replaces the list that was read at a revision. It returns
// [provisioner.ErrConflict] if somebody else has replaced it; after any other
// error it may be written or not.
func (s *Store) NoteProvisioners(ctx context.Context, list []NotedProvisioner, after provisioner.Revision) error {
	if _, err := s.putAnyway(ctx, subjectProvisioners, provisioners{list}, uint64(after)); err != nil {
		return fmt.Errorf("note provisioners: %w", err)
	}
	return nil
}

// ProvisionersOf returns the provisioners that a message of a backup notes. all
// says that these are all there were then, whatever came before.
func ProvisionersOf(subject string, data []byte) (noted []NotedProvisioner, all bool) {
	var list provisioners
	var one NotedProvisioner
	switch {
	case subject == subjectProvisioners && json.Unmarshal(data, &list) == nil:
		return list.List, true
	case strings.HasPrefix(subject, subjectProvisioner) && json.Unmarshal(data, &one) == nil && one.Name != "":
		return []NotedProvisioner{one}, false
	}
	return nil, false
}
