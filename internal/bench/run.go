package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
)

// Run measures what cfg says and returns the result. Whatever it started or
// made is gone when it returns, also if ctx ends meanwhile. An error means that
// the measuring itself could not be done; nodes that did not get through are in
// the result.
func Run(ctx context.Context, cfg Config) (result *Result, err error) {
	if err := cfg.Check(); err != nil {
		return nil, err
	}
	if cfg.Progress == nil {
		cfg.Progress = func(string, int) (func(int), func()) { return func(int) {}, func() {} }
	}
	s := &serving{url: cfg.URL, pids: cfg.PIDs}
	var given string
	if cfg.URL == "" {
		if s, err = install(&cfg); err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, s.stop()) }()
		if err := s.start(ctx, &cfg); err != nil {
			return nil, err
		}
	} else {
		b, err := os.ReadFile(cfg.TokenFile)
		if err != nil {
			return nil, fmt.Errorf("--token: %w", err)
		}
		given = strings.TrimSpace(string(b))
	}
	result = newResult(&cfg)
	result.StartMS = float64(s.opened.Microseconds()) / 1000
	for _, wave := range cfg.Waves {
		token := given
		if token == "" {
			if token, err = s.token(&cfg); err != nil {
				return nil, err
			}
		}
		w, err := s.wave(ctx, &cfg, wave, token)
		if err != nil {
			return nil, err
		}
		result.add(wave, w)
	}
	return result, nil
}
