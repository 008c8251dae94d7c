package server

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"strings"

	"muster/internal/conffile"
	"muster/internal/inputfile"
	"muster/internal/serverconf"
	"muster/internal/wire"
	"muster/server/advice"
	"muster/server/link"
)

const maxRegistration = 64 << 10

const remedyFacts = "make the file one JSON object, or one in YAML; the node asks again once it has changed"

// factsFile returns the path from Config, else from the token, else from server.conf; empty: none.
func (cfg *Config) factsFile(t *token, c *serverconf.Conf) string {
	file := cfg.FactsFile
	if t != nil {
		file = cmp.Or(file, t.Facts)
	}
	if c != nil {
		file = cmp.Or(file, c.FactsFile)
	}
	return file
}

// facts returns the facts for a request, and why they are not the machine's present ones, or "". A renewal does not
// depend on the file: the facts of the last request count on. A node that enrolls sends none if there is no file or
// they are too many; other faults are an error then, since a policy would treat unusable facts as missing.
func (a *agent) facts(ctx context.Context, v *inspection) (facts json.RawMessage, problem string, err error) {
	file := a.cfg.factsFile(v.token, v.conf)
	if file == "" {
		return nil, "", nil
	}
	facts, err = readFacts(file)
	if err == nil {
		a.problems.solved(msgFacts)
		return facts, "", nil
	}
	if v.mode == ModeNormal {
		facts = a.sets.formerFacts()
	} else if !errors.Is(err, ErrMissing) && !errors.Is(err, errTooManyFacts) {
		return nil, "", fmt.Errorf("facts cannot be sent: %w", err)
	}
	a.problems.problem(ctx, slog.LevelWarn, msgFacts, err)
	return facts, boundedProblem(err), nil
}

// readFacts returns an object, written in JSON or YAML, as JSON that fits into a request. The error has a remedy; it
// wraps [ErrMissing] if there is no file.
func readFacts(file string) (json.RawMessage, error) {
	if fi, err := os.Stat(file); err == nil && fi.Size() > inputfile.MaxBytes && fi.Mode().IsRegular() {
		return nil, tooManyFacts(file, fi.Size())
	}
	b, err := inputfile.ReadText(file, inputfile.Configured)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, advice.Errorf("write the machine's facts there, as an object in JSON or YAML, "+
			"if a policy uses facts", "%s: %w", file, ErrMissing)
	case cannotRead(err):
		return nil, advice.New(err, remedyUnreadable)
	case err != nil:
		return nil, advice.New(err, remedyFacts)
	}
	compact, err := parseFacts(b, file)
	if err != nil {
		return nil, advice.New(fmt.Errorf("%s: %w", file, err), remedyFacts)
	}
	if n := len(compact); n > wire.MaxFactsBytes {
		return nil, tooManyFacts(file, int64(n))
	}
	return compact, nil
}

// parseFacts takes a text that begins with a brace for JSON, unless the file's name says that it is YAML.
func parseFacts(b []byte, file string) (json.RawMessage, error) {
	b = bytes.TrimSpace(b)
	if len(b) == 0 {
		return nil, errors.New("empty")
	}
	var err error
	if b[0] != '{' || strings.HasSuffix(file, ".yaml") || strings.HasSuffix(file, ".yml") {
		if b, err = conffile.ToJSON(b); errors.Is(err, conffile.ErrEmpty) {
			return nil, err
		} else if err != nil {
			return nil, fmt.Errorf("neither JSON nor YAML: %w", link.OneLine(err))
		}
	}
	if err := wire.CheckStrict(b); err != nil {
		return nil, err
	}
	if b[0] != '{' {
		return nil, errors.New("a text, a number or a list, want an object with a member for each fact")
	}
	return json.Marshal(json.RawMessage(b))
}

var errTooManyFacts = errors.New("too large")

func tooManyFacts(file string, n int64) error {
	return advice.Errorf("remove facts that no policy uses; the node asks again once the file has changed",
		"%s: %w: %d bytes, limit %d", file, errTooManyFacts, n, wire.MaxFactsBytes)
}

func (v *inspection) registrationFile() (file string) {
	if v.conf != nil {
		file = v.conf.RegistrationFile
	}
	if file == "" && v.token != nil {
		file = v.token.Registration
	}
	return file
}

func readRegistration(file string) ([]byte, error) {
	b, err := inputfile.Read(file, inputfile.Configured, maxRegistration)
	if err == nil {
		b, err = inputfile.Text(b, file)
	}
	if err != nil {
		return nil, err
	}
	if !json.Valid(b) {
		return nil, advice.Errorf("make the file one JSON value", "registration data %s: not JSON", file)
	}
	return b, nil
}
