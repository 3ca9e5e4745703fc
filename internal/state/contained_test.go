package state

import (
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// defectiveTable is a table of Namespaces that panics about the names in defects.
type defectiveTable struct {
	*NamespaceTable
	defects *sync.Map
}

func (d defectiveTable) panicAbout(name string) {
	if _, isDefect := d.defects.Load(name); isDefect {
		panic("a defect of the table")
	}
}

func (d defectiveTable) put(obj client.Object) {
	d.panicAbout(obj.GetName())
	d.NamespaceTable.put(obj)
}

func (d defectiveTable) removeObject(obj client.Object) {
	d.panicAbout(obj.GetName())
	d.NamespaceTable.removeObject(obj)
}

// lockedLog is a log that a test reads while timers write.
type lockedLog struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *lockedLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *lockedLog) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

func namespaceAt(name, version string) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, ResourceVersion: version}}
}

// newDefectiveTable returns the handler of a table that panics about the namespace "a", and its log.
func newDefectiveTable(t *testing.T) (d defectiveTable, c *panicSafeTable, h toolscache.ResourceEventHandler, log *lockedLog) {
	log = &lockedLog{}
	d = defectiveTable{newNamespaces(), &sync.Map{}}
	d.defects.Store("a", true)
	c = wrapEventTable("Namespace", d, slog.New(slog.NewTextHandler(log, nil)))
	return d, c, c.eventHandler(t.Context()), log
}

// versionOf returns the version that the table has of the namespace.
func (d defectiveTable) versionOf(name string) string {
	n, _ := d.Get(name)
	if n == nil {
		return ""
	}
	return n.ResourceVersion
}

// An object whose event panics is tried again after 10 s, then after 20 s. Other objects go on. A
// table without an object of its first list is not synced.
func TestAPanicSetsTheObjectAside(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, c, h, log := newDefectiveTable(t)
		listed := false
		synced := c.syncedAfter(func() bool { return listed })
		h.OnAdd(namespaceAt("a", "1"), true)
		h.OnAdd(namespaceAt("b", "2"), true)
		if d.versionOf("a") != "" || d.versionOf("b") != "2" {
			t.Errorf("the table has the versions %q and %q", d.versionOf("a"), d.versionOf("b"))
		}
		if text := log.String(); strings.Count(text, "\n") != 1 || !strings.Contains(text, "kind=Namespace object=/a version=1 after=10s") || !strings.Contains(text, "a defect of the table") {
			t.Errorf("the log is %s", text)
		}
		if listed = true; synced() {
			t.Error("a table without an object of its first list is synced")
		}
		<-time.After(11 * time.Second) // tried at 10 s
		if text := log.String(); strings.Count(text, "\n") != 2 || !strings.Contains(text, "after=20s") {
			t.Errorf("the log after the second try is %s", text)
		}
		d.defects.Delete("a")
		<-time.After(18 * time.Second)
		if d.versionOf("a") != "" {
			t.Error("the third try came before 30 s")
		}
		<-time.After(2 * time.Second)
		if d.versionOf("a") != "1" || !synced() {
			t.Errorf("after the third try the table has %q, synced %v", d.versionOf("a"), synced())
		}
	})
}

// An update or a deletion that panics leaves the table as it is. A later event of the object replaces
// the one that waits.
func TestAnUnreadableObjectStaysAsItWas(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, c, h, _ := newDefectiveTable(t)
		d.defects.Delete("a")
		h.OnAdd(namespaceAt("a", "1"), true)
		d.defects.Store("a", true)
		h.OnUpdate(nil, namespaceAt("a", "2"))
		h.OnDelete(toolscache.DeletedFinalStateUnknown{Obj: namespaceAt("a", "3")})
		if d.versionOf("a") != "1" || !c.syncedAfter(func() bool { return true })() {
			t.Errorf("the table has %q", d.versionOf("a"))
		}
		d.defects.Delete("a")
		h.OnAdd(namespaceAt("a", "4"), false)
		<-time.After(time.Hour)
		if d.versionOf("a") != "4" {
			t.Errorf("the table has %q after the deletion that had waited", d.versionOf("a"))
		}
		d.defects.Store("a", true)
		h.OnDelete(namespaceAt("a", "5"))
		d.defects.Delete("a")
		<-time.After(11 * time.Second)
		if d.versionOf("a") != "" {
			t.Error("the deletion is not tried again")
		}
	})
}

// A subscriber that panics keeps no other subscriber from a change, and is called again with it.
func TestAPanicOfASubscriberIsRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, _, h, log := newDefectiveTable(t)
		var mu sync.Mutex
		var first, second []string
		var isDefect atomic.Bool
		isDefect.Store(true)
		d.Subscribe(func(name string) {
			if isDefect.Load() {
				panic("a defect of a subscriber")
			}
			mu.Lock()
			defer mu.Unlock()
			first = append(first, name)
		})
		d.Subscribe(func(name string) { second = append(second, name) })
		h.OnAdd(namespaceAt("b", "1"), false)
		if !slices.Equal(second, []string{"b"}) || first != nil {
			t.Errorf("the subscribers have %v and %v", first, second)
		}
		if text := log.String(); !strings.Contains(text, "a defect of a subscriber in state.TestAPanicOfASubscriberIsRepeated") {
			t.Errorf("the log is %s", text)
		}
		isDefect.Store(false)
		<-time.After(11 * time.Second)
		// Once by the subscriber's own retry, and once by the table, which handles the event again.
		mu.Lock()
		defer mu.Unlock()
		if !slices.Equal(first, []string{"b", "b"}) {
			t.Errorf("the subscriber has %v", first)
		}
	})
}

// A defect of a subscriber to transitions does not keep the change from other subscribers.
func TestAPanicAboutTransitionsKeepsNoChangeBack(t *testing.T) {
	rows := newRows(nil)
	rows.SubscribeTransitions(func([]RowTransition) { panic("defect") })
	changed := 0
	rows.Subscribe(func(string, []string) { changed++ })
	func() {
		defer func() { _ = recover() }()
		rows.put(healthySlice(1, 0, 2))
	}()
	if changed != 1 {
		t.Errorf("%d changes", changed)
	}
}
