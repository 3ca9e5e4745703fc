// Package respond writes the answers of endpoints that are not resources: an answer as
// JSON, as text or as a stream of JSON lines, and a refusal as a Status, as the API itself does.
//
// Contract: each function writes one complete response, or none; a LineWriter writes its response line by line. Nothing is kept
// between calls; all functions may be called concurrently.
package respond

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/refusal"
)

// Texter is an answer that has a text for people. all: the text leaves nothing of a
// fleet to a count.
type Texter interface{ FormatText(all bool) string }

// WriteAnswer writes the answer in the format of the query: as text for output=text, as JSON
// otherwise. It writes err as a Status where err is not nil.
func WriteAnswer(w http.ResponseWriter, answer Texter, q url.Values, err error) {
	if err != nil {
		WriteError(w, err)
		return
	}
	if q.Get("output") == "text" {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		fmt.Fprint(w, answer.FormatText(q.Get("all") == "true"))
		return
	}
	WriteJSON(w, http.StatusOK, answer)
}

// WriteError writes err as a Status. An error that is no API error becomes an internal
// error.
func WriteError(w http.ResponseWriter, err error) {
	status := StatusOf(err)
	status.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}
	if status.Details != nil && status.Details.RetryAfterSeconds > 0 {
		w.Header().Set("Retry-After", fmt.Sprint(status.Details.RetryAfterSeconds))
	}
	WriteJSON(w, int(status.Code), status)
}

// WriteJSON writes the value with the HTTP status code.
func WriteJSON(w http.ResponseWriter, code int, value any) {
	body, err := json.Marshal(value)
	if err != nil { // no answer is shown as an empty one
		status := apierrors.NewInternalError(fmt.Errorf("the answer cannot be written as JSON: %w", err)).Status()
		status.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}
		code = int(status.Code)
		body, _ = json.Marshal(status) // a Status has nothing but texts and numbers
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	// The only error left is that the client has closed the connection.
	_, _ = w.Write(append(body, '\n'))
}

// StillStarting is the error of a hub that cannot answer yet. Clients repeat the request
// after a second; client-go does so by itself.
func StillStarting(why string) error {
	err := apierrors.NewServiceUnavailable("the hub is starting up: " + why + "; try again in a few seconds")
	err.ErrStatus.Details = &metav1.StatusDetails{RetryAfterSeconds: 1}
	return refusal.WithReason(atoll.ReasonHubStarting, err)
}

// WantsStream reports whether a request has the parameter watch=true.
func WantsStream(r *http.Request) bool {
	watch, err := strconv.ParseBool(r.URL.Query().Get("watch"))
	return err == nil && watch
}

// CheckParameters refuses a query with a parameter that the endpoint does not have. The
// API server itself honours timeout.
func CheckParameters(q url.Values, endpoint string, parameters ...string) error {
	for name := range q {
		if name != "timeout" && !slices.Contains(parameters, name) {
			last := len(parameters) - 1
			return refusal.WithReason(atoll.ReasonInvalidRequest, apierrors.NewBadRequest(fmt.Sprintf("%s has no parameter %q; it has %s and %s", endpoint, name, strings.Join(parameters[:last], ", "), parameters[last])))
		}
	}
	return nil
}
