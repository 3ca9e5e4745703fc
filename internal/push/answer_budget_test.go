package push

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
)

// budgetMember is a member whose answers are read under a budget.
type budgetMember struct {
	t     *testing.T
	limit *memberResponseLimit
}

// read reads all of an answer, and leaves it open.
func (m budgetMember) read(path string, from io.Reader) (*http.Response, error) {
	m.t.Helper()
	answer := &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {asJSON}}, Body: io.NopCloser(from)}
	r, err := http.NewRequestWithContext(m.t.Context(), http.MethodGet, "http://member"+path, nil)
	if err != nil {
		m.t.Fatal(err)
	}
	got, err := m.limit.guardAnswers(roundTripper(func(*http.Request) (*http.Response, error) { return answer, nil })).RoundTrip(r)
	if err != nil {
		m.t.Fatal(err)
	}
	_, err = io.Copy(io.Discard, got.Body)
	return got, err
}

// textOf returns JSON of n bytes. It takes as much memory, and a few bytes for its value.
func textOf(n int) io.Reader { return strings.NewReader(`"` + strings.Repeat("x", n-2) + `"`) }

// When the answers of all members fill the budget, the member that holds the most is refused: the
// answers of the others are read. The refused member is read again once it has given back what it held.
func TestTheLargestMemberIsRefusedFirst(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		budget := newResponseMemoryBudget(10 << 20)
		large, small := budgetMember{t, budget.newLimit()}, budgetMember{t, budget.newLimit()}
		held, err := large.read("/a", textOf(6<<20))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := large.read("/b", textOf(900<<10)); err != nil {
			t.Errorf("a second answer within the budget: %v", err)
		}
		if _, err := small.read("/a", textOf(5<<20)); err != nil {
			t.Errorf("an answer of the smaller member: %v", err)
		}
		if _, err := large.read("/c", textOf(100<<10)); !errors.Is(err, errAnswer) || !strings.Contains(err.Error(), "more than 10 MiB") {
			t.Errorf("a further answer of the larger member: %v", err)
		}
		if _, err := large.read("/lease", textOf(8<<10)); err != nil {
			t.Errorf("a short answer of the refused member: %v", err)
		}
		if err := held.Body.Close(); err != nil {
			t.Error(err)
		}
		if _, err := large.read("/c", textOf(100<<10)); !errors.Is(err, errAnswer) {
			t.Errorf("an answer before all is given back: %v", err)
		}
	})
}

// The member that would hold the most is refused itself, and keeps its other answers. An answer gives
// back its share when it is closed.
func TestAMemberOverTheBudgetIsRefusedItself(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		budget := newResponseMemoryBudget(4 << 20)
		other, m := budgetMember{t, budget.newLimit()}, budgetMember{t, budget.newLimit()}
		if _, err := other.read("/a", textOf(1<<20)); err != nil {
			t.Fatal(err)
		}
		got, err := m.read("/a", textOf(4<<20))
		if !errors.Is(err, errAnswer) {
			t.Errorf("an answer over the budget: %v", err)
		}
		got.Body.Close()
		if n := budget.holders[m.limit]; n != nil {
			t.Errorf("%d bytes are held after the end", n.bytes)
		}
		if got, err = m.read("/a", textOf(2<<20)); err != nil {
			t.Errorf("an answer within the budget: %v", err)
		}
		if used := budget.used; used < 3<<20-2*unpaced || used > 3<<20 { // the first 16 KiB of an answer do not count
			t.Errorf("%d bytes are used", used)
		}
		budget.dropMember(other.limit)
		got.Body.Close()
		if budget.used != 0 || len(budget.holders) != 0 {
			t.Errorf("%d bytes of %d members are used at the end", budget.used, len(budget.holders))
		}
	})
}

// endlessList is the body of an answer that never ends, once it has sent a text. Close ends its reads.
type endlessList struct {
	io.Reader
	closed chan struct{}
}

func (e endlessList) Read(p []byte) (int, error) {
	if n, err := e.Reader.Read(p); err == nil {
		return n, nil
	}
	<-e.closed
	return 0, io.ErrClosedPipe
}

func (e endlessList) Close() error {
	select {
	case <-e.closed:
	default:
		close(e.closed)
	}
	return nil
}

// A refused member that sends slowly and holds pages of lists gives back both: its read ends, and
// further pages of the list fail until the list begins again.
func TestARefusedMemberGivesBackWhatItHolds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		budget := newResponseMemoryBudget(10 << 20)
		slow, other := budgetMember{t, budget.newLimit()}, budgetMember{t, budget.newLimit()}
		page, err := slow.read("/pods?continue=x", textOf(2<<20))
		if err != nil {
			t.Fatal(err)
		}
		page.Body.Close() // the page stays with its list
		ended := make(chan error, 1)
		list := endlessList{textOf(5 << 20), make(chan struct{})}
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://member/b", nil)
		if err != nil {
			t.Fatal(err)
		}
		got, err := slow.limit.guardAnswers(roundTripper(func(*http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {asJSON}}, Body: list}, nil
		})).RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			_, err := io.Copy(io.Discard, got.Body)
			got.Body.Close()
			ended <- err
		}()
		synctest.Wait()
		if _, err := other.read("/a", textOf(5<<20)); err != nil {
			t.Errorf("the answer of the smaller member: %v", err)
		}
		if err := <-ended; err == nil {
			t.Error("the slow answer goes on")
		}
		synctest.Wait()
		if share := budget.holders[slow.limit]; share != nil {
			t.Errorf("the refused member holds %d bytes", share.bytes)
		}
		if _, err := slow.read("/pods?continue=x", textOf(100<<10)); !errors.Is(err, errAnswer) {
			t.Errorf("a further page of the refused list: %v", err)
		}
		for _, query := range []string{"", "?continue=x"} {
			if _, err := slow.read("/pods"+query, textOf(100<<10)); err != nil {
				t.Errorf("the next list, %q: %v", query, err)
			}
		}
	})
}
