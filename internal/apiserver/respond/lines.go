package respond

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// lineTime bounds how long a client takes to read one line of a stream.
const lineTime = 30 * time.Second

// LineWriter writes an answer of JSON lines. One goroutine uses it.
type LineWriter struct {
	control *http.ResponseController
	encoder *json.Encoder
}

// NewLineWriter begins an answer of lines.
func NewLineWriter(w http.ResponseWriter) *LineWriter {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(http.StatusOK)
	return &LineWriter{control: http.NewResponseController(w), encoder: json.NewEncoder(w)}
}

// WriteLine writes one line. A client that does not read it in time loses the stream. A writer that has no
// deadlines, as in tests, writes without.
func (l *LineWriter) WriteLine(value any) error {
	_ = l.control.SetWriteDeadline(time.Now().Add(lineTime))
	if err := l.encoder.Encode(value); err != nil {
		return err
	}
	err := l.control.Flush()
	_ = l.control.SetWriteDeadline(time.Time{}) // HTTP/2 ends a stream at its deadline, also one that is idle
	return err
}

// StatusOf returns the Status of an error. An error that is no API error becomes an internal error.
func StatusOf(err error) metav1.Status {
	var known apierrors.APIStatus
	if !errors.As(err, &known) {
		known = apierrors.NewInternalError(err)
	}
	return known.Status()
}

// AwaitWake waits for a change that a stream has to send, at least for the pause. It returns false when the stream is over.
func AwaitWake(ctx context.Context, wake <-chan struct{}, pause time.Duration) bool {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
	}
	select {
	case <-ctx.Done():
		return false
	case <-wake:
	}
	return true
}
