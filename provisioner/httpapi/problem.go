package httpapi

import (
	"errors"
	"net/http"
	"slices"
	"strings"

	"muster/internal/paging"
	"muster/internal/wire"
	"muster/jwt"
	"muster/policies"
	"muster/provisioner"
	"muster/provisioner/ca"
	"muster/provisioner/events"
	"muster/provisioner/fleet"
	"muster/provisioner/login"
	"muster/provisioner/operate"
	"muster/provisioner/services"
	"muster/provisioner/trust"
)

const (
	typeJSON     = "application/json"
	typeProblem  = "application/problem+json"
	problemType  = "urn:muster:problem:" // with the code
	problemBlank = "about:blank"
)

// A Problem is an error document (RFC 9457). It has no instance: the log names the caller and the request.
type Problem struct {
	// Type and Title are those of the code, or else about:blank and the status text (RFC 9457 section 4.2.1). The
	// server sets them.
	Type  string `json:"type"`
	Title string `json:"title"`

	Status int       `json:"status"`           // of HTTP
	Detail string    `json:"detail"`           // one line; several for a policy
	Code   wire.Code `json:"code,omitempty"`   // of [wire.Codes], if any
	Remedy string    `json:"remedy,omitempty"` // what to do

	// LeftAlone: the order had no effect, since the node has changed after it was chosen. Do not repeat the order.
	LeftAlone bool `json:"left_alone,omitempty"`
}

func (p *Problem) Error() string {
	if p.Remedy != "" {
		return p.Detail + "; " + p.Remedy
	}
	return p.Detail
}

// problems maps errors to status, code and remedy. The first match counts.
var problems = []struct {
	status int
	code   wire.Code // gives the remedy
	remedy string
	errs   []error
}{
	{http.StatusServiceUnavailable, wire.CodeClockBehind, "", []error{trust.ErrClock}},
	{http.StatusNotFound, "", "", []error{
		provisioner.ErrNoRecord, operate.ErrUnknownToken, trust.ErrNoOperator, login.ErrNoSession,
		operate.ErrNotWaiting,
		operate.ErrNotAllowed, services.ErrNone, events.ErrUnknownWebhook, errNoCRL,
	}},
	{http.StatusConflict, "", "", []error{
		trust.ErrState, operate.ErrNotPaused, operate.ErrNoClaim, operate.ErrClaimYoung,
		operate.ErrClaimEnrolled, fleet.ErrHeard,
	}},
	{http.StatusUnprocessableEntity, "", "", []error{policies.ErrInvalid}},
	{
		http.StatusServiceUnavailable, "",
		"retry in a few seconds; a provisioner that starts under load serves nodes first, for half a minute",
		[]error{fleet.ErrReading},
	},
	{
		http.StatusServiceUnavailable, "", "retry in a few seconds if the node is about to reconnect",
		[]error{operate.ErrNodeAway},
	},
	{
		http.StatusGatewayTimeout, "", "retry: a node does not carry out a command twice",
		[]error{operate.ErrNodeSilent},
	},
	{http.StatusConflict, "", "name the node's token with --token-file", []error{operate.ErrNoCommandKey}},
	{http.StatusServiceUnavailable, wire.CodeAuthorityExpired, "", []error{ca.ErrExpired}},
	{http.StatusServiceUnavailable, wire.CodeCertificateFailed, "", []error{ca.ErrAuthority}},
	{http.StatusBadRequest, "", "", []error{
		trust.ErrTokenID, operate.ErrEverything, wire.ErrPattern, ca.ErrRequest, jwt.ErrKey,
		paging.ErrCursor, fleet.ErrFact,
	}},
	{http.StatusInsufficientStorage, wire.CodeStorageLow, "", []error{trust.ErrStoreFull}},
	{http.StatusServiceUnavailable, wire.CodeStoreUnavailable, "", []error{
		trust.ErrUnacknowledged, trust.ErrRevocationsUnknown, fleet.ErrIncomplete,
	}},
}

// ProblemOf returns the answer for an error of the provisioner.
func ProblemOf(err error) *Problem {
	var p *Problem
	var order *provisioner.OrderError
	var refusal *provisioner.Refusal
	switch {
	case errors.As(err, &p):
		return p
	case errors.Is(err, operate.ErrOtherSite):
		return &Problem{
			Detail: operate.ErrOtherSite.Error(),
			Status: http.StatusForbidden,
			Remedy: "ask an operator without a limit to sites",
		}
	case errors.As(err, &order):
		return badRequest(err)
	case errors.Is(err, login.ErrLogin), errors.Is(err, login.ErrLimited), errors.Is(err, login.ErrProvider):
		return loginProblem(err)
	}
	for _, known := range problems {
		if !isAny(err, known.errs...) {
			continue
		}
		p := &Problem{
			Detail:    err.Error(),
			Status:    known.status,
			Code:      known.code,
			Remedy:    known.remedy,
			LeftAlone: isAny(err, provisioner.ErrChanged, fleet.ErrHeard),
		}
		switch {
		case known.status == http.StatusBadRequest:
			return badRequest(err)
		case known.code != "":
			p.Remedy = wire.MeaningOf(known.code).Remedy
		}
		return p
	}
	if errors.As(err, &refusal) {
		return &Problem{
			Detail: err.Error(),
			Status: http.StatusServiceUnavailable,
			Code:   refusal.Code,
			Remedy: wire.MeaningOf(refusal.Code).Remedy,
		}
	}
	return &Problem{Detail: err.Error(), Status: http.StatusInternalServerError}
}

// loginProblem hides the details of a failed login, which the log has.
func loginProblem(err error) *Problem {
	p := &Problem{Detail: login.ErrLogin.Error(), Status: http.StatusUnauthorized}
	var untimely *login.ValidityError
	switch {
	case errors.Is(err, login.ErrLimited):
		p.Detail, p.Status = login.ErrLimited.Error(), http.StatusTooManyRequests
		p.Remedy = "try again in a second"
	case errors.Is(err, login.ErrProvider):
		p.Detail, p.Status = login.ErrProvider.Error(), http.StatusBadGateway
		p.Remedy = "the provisioner's log says why; operators with a certificate or a token can still sign in"
	case errors.Is(err, login.ErrNoRole):
		p.Detail, p.Status = login.ErrNoRole.Error(), http.StatusForbidden
		p.Remedy = "ask for a group, sign out at the provider, and sign in again"
	case errors.As(err, &untimely):
		p.Detail = untimely.Error()
		p.Remedy = "use another credential, or correct the clock of the provisioner or of its issuer"
	default:
		p.Remedy = "use an operator's certificate or token, or `muster login`; the provisioner's log says what is " +
			"wrong with this one"
	}
	return p
}

func isAny(err error, those ...error) bool {
	return slices.ContainsFunc(those, func(target error) bool { return errors.Is(err, target) })
}

// maxDetail bounds the detail of a bad request: errors may quote the whole request.
const maxDetail = 2000

func badRequest(err error) *Problem {
	detail := err.Error()
	if len(detail) > maxDetail {
		detail = strings.ToValidUTF8(detail[:maxDetail], "") + "…"
	}
	return &Problem{Detail: detail, Status: http.StatusBadRequest}
}

func (p *Problem) write(w http.ResponseWriter) {
	sent := *p // p may be shared
	if p.Status != http.StatusUnprocessableEntity {
		sent.Detail = strings.ReplaceAll(p.Detail, "\n", "; ") // joined errors have a line each
	}
	sent.Type, sent.Title = problemBlank, http.StatusText(p.Status)
	if p.Code != "" {
		sent.Type, sent.Title = problemType+string(p.Code), wire.MeaningOf(p.Code).Public
	}
	w.Header().Set("Content-Type", typeProblem)
	w.WriteHeader(p.Status)
	writeJSON(w, &sent)
}
