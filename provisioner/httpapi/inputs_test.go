package httpapi_test

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"muster/provisioner/httpapi"
)

// TestInputsAreCutOff lets inputs fail before and after their beginning: the
// client is told why, or finds that they have no end.
func TestInputsAreCutOff(t *testing.T) {
	t.Parallel()
	failed := errors.New("the store is away")
	for name, tt := range map[string]struct {
		before, after error
		body          string
	}{
		"before": {before: failed}, "after": {after: failed, body: "{}\n"}, "never": {body: "{}\n\n"}, "none": {},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			client := serve(t, httpapi.Config{Inputs: func(_ context.Context, age time.Duration, started func(uint64),
				w io.Writer) error {
				if age != 90*time.Minute {
					t.Errorf("age %v, want 1h30m", age)
				}
				if tt.before != nil {
					return tt.before
				}
				started(7)
				if _, err := io.WriteString(w, tt.body); err != nil {
					return err
				}
				return tt.after
			}})
			body, batches, err := client.Inputs(t.Context(), 90*time.Minute)
			if tt.before != nil {
				if err == nil || !strings.Contains(err.Error(), failed.Error()) {
					t.Errorf("%v, want %v", err, failed)
				}
				return
			}
			// What is cut off may be so before the answer has begun.
			if err != nil && tt.after == nil || err == nil && batches != 7 {
				t.Fatalf("%d batches, %v", batches, err)
			}
			if err != nil {
				return
			}
			defer func() { _ = body.Close() }()
			if got, err := io.ReadAll(body); (err != nil) != (tt.after != nil) || err == nil && string(got) != tt.body {
				t.Errorf("%q, %v", got, err)
			}
		})
	}
	var p *httpapi.Problem
	if _, _, err := serve(t, httpapi.Config{Inputs: func(context.Context, time.Duration, func(uint64),
		io.Writer) error {
		return nil
	}}).
		Inputs(t.Context(), -time.Hour); !errors.As(err, &p) || p.Status != 400 {
		t.Errorf("a negative age: %v", err)
	}
}
