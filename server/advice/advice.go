// Package advice attaches remedies to errors.
package advice

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

type advised struct {
	error
	remedy string
}

func (a *advised) Unwrap() error { return a.error }

// New returns err with a remedy of one clause; an empty remedy adds none.
func New(err error, remedy string) error { return &advised{err, remedy} }

// Errorf is New of an error made by [fmt.Errorf].
func Errorf(remedy, format string, args ...any) error {
	return New(fmt.Errorf(format, args...), remedy)
}

// Given reports whether err has been through [New].
func Given(err error) bool { return errors.As(err, new(*advised)) }

// Of returns the remedies in err, each once, joined by semicolons.
func Of(err error) string { return strings.Join(collect(err, nil), "; ") }

func collect(err error, list []string) []string {
	if a, ok := err.(*advised); ok && a.remedy != "" { //nolint:errorlint // what follows unwraps
		if slices.Contains(list, a.remedy) {
			return list
		}
		return append(list, a.remedy)
	}
	switch e := err.(type) { //nolint:errorlint // as above
	case interface{ Unwrap() error }:
		return collect(e.Unwrap(), list)
	case interface{ Unwrap() []error }:
		for _, err := range e.Unwrap() {
			list = collect(err, list)
		}
	}
	return list
}

// InText returns err with its remedies in its text, for errors without log attributes.
func InText(err error) error {
	if remedy := Of(err); remedy != "" {
		return fmt.Errorf("%w: %s", err, remedy)
	}
	return err
}
