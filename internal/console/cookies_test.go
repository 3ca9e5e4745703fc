package console

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
)

// signInWith signs a browser in by a token.
func (b *browser) signInWith(token string) *http.Response {
	return b.send(pageRequest("POST", sessionPath, fmt.Sprintf(`{"token":%q}`, token)))
}

// A token that is longer than a cookie signs in by two cookies, which belong together.
func TestALongTokenHasTwoCookies(t *testing.T) {
	h := newTestHub(t, 1)
	long, other := strings.Repeat("a", maxToken), strings.Repeat("b", maxToken)
	h.api.accepts = func(token string) bool { return token == long || token == other }
	names := sessionCookies(pageRequest("GET", "/", ""))
	b := newBrowser(h)
	if answer := b.signInWith(long); answer.StatusCode != http.StatusOK || len(b.cookies) != 2 {
		t.Fatalf("%d, with %d cookies", answer.StatusCode, len(b.cookies))
	}
	for name, c := range b.cookies {
		if !strings.HasPrefix(name, cookiePrefix) || len(name)+len(c.Value) > 4096 || !c.HttpOnly || !c.Secure || c.SameSite != http.SameSiteStrictMode || c.MaxAge != 12*60*60 {
			t.Errorf("the cookie is %s", c)
		}
	}
	if got := b.readPods(); got == nil || got.Header.Get("Authorization") != "Bearer "+long || len(got.Cookies()) > 0 {
		t.Errorf("the API gets %v", got)
	}
	second := b.cookies[names.more]
	b.signInWith(other)
	kept := b.cookies[names.more]
	b.cookies[names.more] = second // of another session
	if got := b.readPods(); got != nil {
		t.Error("cookies of two sessions open a session")
	}
	delete(b.cookies, names.more)
	if got := b.readPods(); got != nil {
		t.Error("half a session opens a session")
	}
	b.cookies[names.more] = kept
	b.signInWith(goodToken)
	if len(b.cookies) != 1 {
		t.Errorf("a shorter token leaves %d cookies", len(b.cookies))
	}
	b.cookies[names.more] = kept // as one that another browser of the person has written
	if got := b.readPods(); got == nil || got.Header.Get("Authorization") != "Bearer "+goodToken {
		t.Errorf("a second cookie changes a session of one: %v", got)
	}
	b.signInWith(long)
	if answer := b.send(pageRequest("DELETE", sessionPath, "")); answer.StatusCode != http.StatusNoContent || len(b.cookies) > 0 {
		t.Errorf("after the sign-out: %d, %v", answer.StatusCode, b.cookies)
	}
}

// A revoked token takes both cookies along.
func TestARevokedLongTokenLeavesNoCookie(t *testing.T) {
	h := newTestHub(t, 1)
	h.api.accepts = func(string) bool { return true }
	b := newBrowser(h)
	b.signInWith(strings.Repeat("a", maxToken))
	h.api.accepts = nil
	if answer := b.send(pageRequest("GET", sessionPath, "")); answer.StatusCode != http.StatusUnauthorized || len(b.cookies) > 0 {
		t.Errorf("%d, %d cookies", answer.StatusCode, len(b.cookies))
	}
}

// A text of each length comes back, at the bound of a cookie, too.
func TestTextsOfCookies(t *testing.T) {
	for _, length := range []int{1, maxPart - 1, maxPart, maxPart + 1, maxSealed} {
		h := newTestHub(t, 1)
		b := newBrowser(h)
		text := strings.Repeat("a", length-1) + "z"
		h.handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if got := offerCookies(r).readText(r); r.Method == http.MethodPut && got != text {
				t.Errorf("a text of %d comes back with %d", length, len(got))
			}
			offerCookies(r).setText(w, r, text, offerTime)
		})
		b.send(pageRequest("POST", "/console/x", ""))
		b.send(pageRequest("PUT", "/console/x", ""))
	}
}
