package push

import (
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strconv"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/runtime"

	"atoll.dev/atoll/internal/answerweight"
	"atoll.dev/atoll/internal/pace"
)

const (
	// answerMost bounds an answer of a member, decompressed, in bytes, and decodedMost what it
	// becomes in memory.
	answerMost  = 64 << 20
	decodedMost = 4 * answerMost
	// eventMost bounds an event of a watch, in bytes, and eventDecodedMost what it becomes in
	// memory. The largest object of an API is smaller.
	eventMost        = 4 << 20
	eventDecodedMost = 64 << 20
	// failureMost bounds an error of a member's API, or text of another form, in bytes, and
	// failureDecodedMost what it becomes in memory. A longer one is left out.
	failureMost        = 64 << 10
	failureDecodedMost = 1 << 20
	// eventLeast is the weight of an event that is counted at least: each one takes CPU.
	eventLeast = 4 << 10
	// unpaced is the weight of an answer that is read without a wait, so that the Lease of a member
	// is renewed while the agent reads long lists.
	unpaced = 16 << 10
	// largeAnswer is the size from which on a member's answers are read one after another.
	largeAnswer = 1 << 20
	// keptMost bounds what the agent is about to keep of a member's lists, in bytes of decoded memory:
	// lists in pages, and watches that begin with a list, of all kinds.
	keptMost = 512 << 20
	// weightUnit is the weight that a token of pace.MemberAnswers stands for.
	weightUnit = 1 << 10
)

// responseGuard bounds what the answers of one member take of the hub's memory and CPU. It passes on
// the hub's requests. An answer over a bound ends with an error; a member that sends too much at a
// time is read more slowly, which delays no other member.
type responseGuard struct {
	next  http.RoundTripper
	limit *memberResponseLimit
}

// memberResponseLimit is what all requests to one member share.
type memberResponseLimit struct {
	rate   *pace.Limiter
	large  chan struct{}         // capacity 1: the answer that is large
	budget *responseMemoryBudget // is shared with other members

	mu    sync.Mutex
	open  map[*limitedResponseBody]struct{} // answers that hold something of the budget
	most  int                               // keptMost
	kept  int                               // of most
	pages map[string]*pageList              // by path
}

// newLimit returns the bounds of a member's answers. dropMember must be called at their end.
func (g *responseMemoryBudget) newLimit() *memberResponseLimit {
	return &memberResponseLimit{budget: g, open: map[*limitedResponseBody]struct{}{}, rate: pace.MemberAnswers.NewLimiter(), large: make(chan struct{}, 1), most: keptMost, pages: map[string]*pageList{}}
}

// guardAnswers returns a transport that bounds the answers of next.
func (l *memberResponseLimit) guardAnswers(next http.RoundTripper) http.RoundTripper {
	return &responseGuard{next: next, limit: l}
}

// WrappedRoundTripper lets client-go find the transport below.
func (g *responseGuard) WrappedRoundTripper() http.RoundTripper { return g.next }

// RoundTrip sends a request, and returns an answer whose body is bounded.
func (g *responseGuard) RoundTrip(r *http.Request) (*http.Response, error) {
	answer, err := g.next.RoundTrip(r)
	if err != nil || answer.Body == nil || answer.StatusCode == http.StatusSwitchingProtocols {
		return answer, err
	}
	b := &limitedResponseBody{ctx: r.Context(), from: answer.Body, limit: g.limit, form: formOf(answer)}
	query := r.URL.Query()
	watch, _ := strconv.ParseBool(query.Get("watch")) // another value is no watch
	switch {
	case watch && query.Get("sendInitialEvents") != "":
		b.keeps = keepsInitialEvents
	case query.Get("continue") != "":
		b.keeps, b.path = keepsPage, r.URL.Path
	default:
		g.limit.dropPages(r.URL.Path)
	}
	b.next = b.chooseSource(answer.StatusCode >= http.StatusMultipleChoices, watch, acceptsProtobuf(r))
	if b.form == formOther { // which no decoder is to take, such as YAML
		answer.Header.Set("Content-Type", "text/plain")
	}
	answer.Body, answer.ContentLength = b, -1
	return answer, nil
}

// chooseSource returns the source by which the answer is read. typed: it may be decoded to structs.
func (b *limitedResponseBody) chooseSource(failed, watch, typed bool) source {
	switch {
	case failed || b.form == formOther:
		return b.readFailure(typed)
	case watch && b.form == formProtobuf:
		return b.nextWatchFrame
	case watch:
		return b.scanJSON(typed, eventMost, eventDecodedMost, eventLeast)
	case b.form == formProtobuf:
		return b.readWhole
	}
	return b.scanJSON(typed, answerMost, decodedMost, 0)
}

// form of an answer.
type form int

const (
	formOther form = iota
	formJSON
	formProtobuf
)

// formOf returns the form of an answer. One that does not state a form is decoded as JSON.
func formOf(answer *http.Response) form {
	media, _, _ := mime.ParseMediaType(answer.Header.Get("Content-Type")) // none where it is malformed
	switch {
	case media == runtime.ContentTypeProtobuf:
		return formProtobuf
	case media == runtime.ContentTypeJSON, answer.Header.Get("Content-Type") == "":
		return formJSON
	}
	return formOther
}

// acceptsProtobuf reports whether the request accepts protobuf, as requests for kinds that are
// decoded to structs do.
func acceptsProtobuf(r *http.Request) bool {
	return strings.Contains(r.Header.Get("Accept"), runtime.ContentTypeProtobuf)
}

var (
	errAnswer = errors.New("the member's API sends more than an agent in the hub reads")
	errFrame  = fmt.Errorf("%w: an event of a watch has more than %d MiB, or is none", errAnswer, eventMost>>20)
)

// newLimitError returns the error for an answer that is over a bound.
func newLimitError(err error) error { return fmt.Errorf("%w: %w", errAnswer, err) }

// readFailure returns a source of a whole short answer: nothing, where it is long.
func (b *limitedResponseBody) readFailure(typed bool) source {
	return func([]byte) ([]byte, error) {
		b.next = endOfBody
		text, err := io.ReadAll(io.LimitReader(b.from, failureMost+1))
		if err != nil || len(text) > failureMost {
			return nil, err
		}
		if b.form == formProtobuf {
			if _, err := weighObject(text, failureDecodedMost); err != nil {
				return nil, nil
			}
		} else if _, err := answerweight.NewJSONScanner(typed).Scan(text, failureMost, failureDecodedMost); err != nil {
			return nil, nil
		}
		return text, nil
	}
}

// scanJSON returns a source of JSON in pieces, with bounds for each value at the top.
func (b *limitedResponseBody) scanJSON(typed bool, most, decoded, least int) source {
	scanner := answerweight.NewJSONScanner(typed)
	return func(into []byte) ([]byte, error) {
		n, err := b.from.Read(into)
		if b.bytes += n; least == 0 && b.bytes > largeAnswer {
			if late := b.waitForLargeResponseSlot(); late != nil {
				return nil, late
			}
		}
		before := scanner.CompletedValues()
		weight, heavy := scanner.Scan(into[:n], most, decoded)
		if heavy != nil {
			return nil, newLimitError(heavy)
		}
		if paced := b.chargeWeight(weight+least*(scanner.CompletedValues()-before), least > 0); paced != nil {
			return nil, paced
		}
		return into[:n], err
	}
}
