package console

import (
	"context"
	"errors"
	"net/http"
	"net/url"
)

// What an operator has filled in is not lost with their session. The page that asks them to
// sign in carries the form that they sent, and once they have, it is shown to them again:
// what they meant is done when they press its button once more.

// maxCarried is how much of a form is carried on, encoded; chosen, it has some hundreds of
// approvals. Encoded once more it is below maxFormBytes.
const maxCarried = 100 << 10

// fieldKept holds the form that is carried on.
const fieldKept = "kept"

// What is said of a form that is shown again.
var (
	errSignedIn = errors.New("you are signed in again, and nothing was done yet: if you still mean it, send it")

	// Somebody has signed in since in another tab, or this is another site's.
	errTooOld = errors.New("this form is too old, or not one of the console's, and nothing was done: if you still mean it, send it")
)

// resumedKey is the key of the login under which a form is shown again, in contexts.
type resumedKey struct{}

// kept returns the form of a request, to be carried on; "" if it is none of ours, or no page
// shows it again.
func kept(w http.ResponseWriter, r *http.Request, need route) string {
	if !need.again || readForm(w, r) != nil {
		return ""
	}
	form := make(url.Values)
	for name, values := range r.PostForm {
		if name != fieldForm {
			form[name] = values
		}
	}
	if text := form.Encode(); len(text) <= maxCarried {
		return text
	}
	return ""
}

// resume shows a form again that was carried on to next, for who has just signed in and been
// given another secret for forms, and reports whether there is such a page.
func (c *Console) resume(v *visit, next, secret string) bool {
	to, err := url.Parse(next)
	form, wrong := url.ParseQuery(v.r.PostForm.Get(fieldKept))
	if err != nil || wrong != nil || len(form) == 0 {
		return false
	}
	form.Set(fieldForm, secret)
	again := v.r.Clone(context.WithValue(v.r.Context(), resumedKey{}, v.login))
	again.URL, again.Form, again.PostForm = to, nil, form
	again.Header.Set("Cookie", cookieForm+"="+secret)
	if _, pattern := c.mux.Handler(again); !table[pattern].again {
		return false
	}
	c.mux.ServeHTTP(v.w, again)
	return true
}
