package reach

import (
	"net/http"
	"strings"
	"testing"
)

// A panic beside the caller is his, and says where it came from; that a request is broken off is
// told as it is, since servers know it by that.
func TestAPanicBesideSaysWhereItCameFrom(t *testing.T) {
	after := func(do func()) (broken any) {
		defer func() { broken = recover() }()
		Beside(do)
		return nil
	}
	if broken := after(func() {}); broken != nil {
		t.Errorf("of nothing it tells %v", broken)
	}
	if broken := after(func() { panic(http.ErrAbortHandler) }); broken != http.ErrAbortHandler {
		t.Errorf("of a request that is broken off it tells %v", broken)
	}
	text, _ := after(breaks).(string)
	if !strings.HasPrefix(text, "it is broken\n") || !strings.Contains(text, "reach.breaks") {
		t.Errorf("it tells %q", text)
	}
}

func breaks() { panic("it is broken") }
