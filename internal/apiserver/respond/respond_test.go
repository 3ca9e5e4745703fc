package respond

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

type fakeAnswer struct {
	Value int `json:"value"`
}

func (a fakeAnswer) FormatText(all bool) string {
	if all {
		return "all"
	}
	return "some"
}

func TestAnswersAreJSONOrText(t *testing.T) {
	for _, tc := range []struct{ query, contentType, body string }{
		{"", "application/json", "{\"value\":3}\n"},
		{"output=json&all=true", "application/json", "{\"value\":3}\n"},
		{"output=text", "text/plain; charset=utf-8", "some"},
		{"output=text&all=true", "text/plain; charset=utf-8", "all"},
	} {
		q, err := url.ParseQuery(tc.query)
		if err != nil {
			t.Fatal(err)
		}
		w := httptest.NewRecorder()
		WriteAnswer(w, fakeAnswer{3}, q, nil)
		if w.Code != http.StatusOK || w.Header().Get("Content-Type") != tc.contentType || w.Body.String() != tc.body {
			t.Errorf("%q: %d %s %q", tc.query, w.Code, w.Header().Get("Content-Type"), w.Body.String())
		}
	}
}

func TestErrorsAreStatuses(t *testing.T) {
	for name, tc := range map[string]struct {
		err    error
		code   int
		reason metav1.StatusReason
		retry  string
	}{
		"an API error":      {apierrors.NewBadRequest("no"), http.StatusBadRequest, metav1.StatusReasonBadRequest, ""},
		"another error":     {errors.New("broken"), http.StatusInternalServerError, metav1.StatusReasonInternalError, ""},
		"a hub that starts": {StillStarting("its tables are being read"), http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable, "1"},
	} {
		w := httptest.NewRecorder()
		WriteAnswer(w, fakeAnswer{}, nil, tc.err)
		var status metav1.Status
		if err := json.Unmarshal(w.Body.Bytes(), &status); err != nil {
			t.Fatal(err)
		}
		if w.Code != tc.code || status.Reason != tc.reason || status.Kind != "Status" || status.APIVersion != "v1" || w.Header().Get("Retry-After") != tc.retry {
			t.Errorf("%s: %d, Retry-After %q, %+v", name, w.Code, w.Header().Get("Retry-After"), status)
		}
	}
}

// A value without a form in JSON, such as the time of an absurd report, is an error and not an empty
// answer.
func TestNoAnswerIsEmpty(t *testing.T) {
	w := httptest.NewRecorder()
	WriteJSON(w, http.StatusOK, map[string]any{"since": time.Unix(1<<60, 0)})
	var status metav1.Status
	if err := json.Unmarshal(w.Body.Bytes(), &status); err != nil || w.Code != http.StatusInternalServerError || status.Reason != metav1.StatusReasonInternalError {
		t.Errorf("%d %q, %v", w.Code, w.Body.String(), err)
	}
}

func TestUnknownParametersAreRefused(t *testing.T) {
	if err := CheckParameters(url.Values{"timeout": nil, "all": nil}, "plan", "output", "all"); err != nil {
		t.Error(err)
	}
	err := CheckParameters(url.Values{"fields": nil}, "plan", "output", "action", "all")
	if !apierrors.IsBadRequest(err) || err.Error() != `plan has no parameter "fields"; it has output, action and all` {
		t.Error(err)
	}
}

func TestRequestsForStreams(t *testing.T) {
	for query, want := range map[string]bool{"": false, "watch=true": true, "watch=1": true, "watch=false": false, "watch=x": false, "follow=true": false} {
		if got := WantsStream(httptest.NewRequest(http.MethodGet, "/tree?"+query, nil)); got != want {
			t.Errorf("%q: %t", query, got)
		}
	}
}
