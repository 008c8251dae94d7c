package provisioner

import (
	"context"

	"muster/internal/wire"
)

// allowanceLog is an allow-list in memory.
type allowanceLog struct {
	entries []*Allowance
}

func (l *allowanceLog) Allowance(_ context.Context, p wire.Pattern) (a *Allowance, at Revision, err error) {
	for i, e := range l.entries {
		if e.Pattern == p {
			a, at = e, Revision(i+1)
		}
	}
	return a, at, nil
}

func (l *allowanceLog) PutAllowance(_ context.Context, a *Allowance, after Revision) error {
	if _, at, _ := l.Allowance(context.Background(), a.Pattern); at != after {
		return ErrConflict
	}
	l.entries = append(l.entries, a)
	return nil
}

func (l *allowanceLog) NextAllowance(_ context.Context, after Sequence) (*Allowance, Sequence, error) {
	if int(after) >= len(l.entries) {
		return nil, 0, nil
	}
	return l.entries[after], after + 1, nil
}

func (l *allowanceLog) Allowances(_ context.Context, after Sequence, each func(*Allowance, Sequence, error) error) error {
	return scanned(l.entries, after, each)
}

// scanned calls each for the entries after a place, as a store does.
func scanned[E any](entries []E, after Sequence, each func(E, Sequence, error) error) error {
	for int(after) < len(entries) {
		after++
		if err := each(entries[after-1], after, nil); err != nil {
			return err
		}
	}
	return nil
}

// pauseLog is a log of pauses in memory.
type pauseLog struct {
	entries []*Pause
}

func (l *pauseLog) NextPause(_ context.Context, after Sequence) (*Pause, Sequence, error) {
	if int(after) >= len(l.entries) {
		return nil, 0, nil
	}
	return l.entries[after], after + 1, nil
}

func (l *pauseLog) PutPause(_ context.Context, s *Pause, _ Revision) error {
	l.entries = append(l.entries, s)
	return nil
}

func (l *pauseLog) Pauses(_ context.Context, after Sequence, each func(*Pause, Sequence, error) error) error {
	return scanned(l.entries, after, each)
}

// answerLog is a log of verdicts in memory.
type answerLog struct {
	AnswerStore
	entries []*Answer
}

func (l *answerLog) NextAnswer(_ context.Context, after Sequence) (*Answer, Sequence, error) {
	if int(after) >= len(l.entries) {
		return nil, 0, nil
	}
	return l.entries[after], after + 1, nil
}

func (l *answerLog) Answers(_ context.Context, after Sequence, each func(*Answer, Sequence, error) error) error {
	return scanned(l.entries, after, each)
}
