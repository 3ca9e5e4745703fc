package server

import (
	"errors"
	"runtime"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// An answer of a member takes memory only after it was asked for, and about as much as was asked for.
func FuzzAnswers(f *testing.F) {
	for kind, message := range map[string][]byte{
		"Pod":     inField(2, repeatMessage(3, inField(2, nil))),
		"PodList": repeatMessage(20, inField(2, inField(1, inField(1, []byte("web"))))),
		"Event":   inField(1, []byte{}),
		"Status":  inField(3, []byte("gone")),
		"Unknown": nil,
	} {
		f.Add(kind, message)
	}
	f.Add("PodList", protowire.AppendBytes(nil, []byte(strings.Repeat("\x12\x00", 1000))))
	f.Fuzz(func(t *testing.T, kind string, message []byte) {
		checkAnswer(t, packMessage(t, kind, message))
		checkAnswer(t, message)
	})
}

func checkAnswer(t *testing.T, data []byte) {
	t.Helper()
	refused := errors.New("refused")
	if obj, err := liveAnswers.decodeLimited(data, func(int) error { return refused }); err == nil {
		t.Fatalf("%T is decoded, and its memory was not asked for", obj)
	}
	asked := 0
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	obj, err := liveAnswers.decodeLimited(data, func(weight int) error {
		asked += weight
		return nil
	})
	runtime.ReadMemStats(&after)
	if err != nil {
		return
	}
	if s, ok := obj.(*metav1.Status); ok && asked < len(s.Message) {
		t.Fatalf("%d bytes asked for a message of %d", asked, len(s.Message))
	}
	// The decoder copies its input, and grows slices by doubling them.
	if made := int(after.TotalAlloc - before.TotalAlloc); made > 64<<10+8*(asked+len(data)) {
		t.Fatalf("%d bytes of an answer asked for %d, and took %d", len(data), asked, made)
	}
}
