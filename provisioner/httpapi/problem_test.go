package httpapi_test

import (
	"net/http"
	"testing"
	"time"

	"muster/internal/testbed"
	"muster/internal/wire"
	"muster/provisioner"
	"muster/provisioner/httpapi"
)

// TestProblemsSayOfWhichKindTheyAre compares two problems without a code, and one
// with: type and title are those of the kind, and the rest is of this one.
func TestProblemsSayOfWhichKindTheyAre(t *testing.T) {
	t.Parallel()
	f := testbed.New(t, testbed.Options{})
	plain := refused(t, f, http.MethodGet, "/v1/tokens/"+"0123456789abcdef0123456789abcdef", nil)
	if plain.Type != "about:blank" || plain.Title != "Not Found" || plain.Status != http.StatusNotFound || plain.Detail == plain.Title || plain.Code != "" {
		t.Errorf("without a code: %+v", *plain)
	}
	if p := refused(t, f, http.MethodGet, "/v1/none", nil); p.Type != plain.Type || p.Title != plain.Title || p.Detail == plain.Detail {
		t.Errorf("another one: %+v", *p)
	}
	f.Clock.Advance(-24 * time.Hour) // before the authority began
	_, public := newKey(t)
	p := refused(t, f, http.MethodPost, "/v1/operators", httpapi.AddOperator{NewOperator: provisioner.NewOperator{Name: "anna", Role: provisioner.RoleViewer, Public: public, Certificate: true}})
	if p.Code == "" || p.Type != "urn:muster:problem:"+string(p.Code) || p.Title != wire.MeaningOf(p.Code).Public || p.Remedy == "" {
		t.Errorf("with a code: %+v", *p)
	}
}
