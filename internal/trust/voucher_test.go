package trust

import "testing"

func TestVouchers(t *testing.T) {
	key, other := []byte("one key of a hub, of some length"), []byte("the key of another hub, as long")
	v := NewVoucher(key, "oslo", "u1")
	shown, err := ParseToken(v.Reveal())
	if err != nil {
		t.Fatalf("a voucher is shown like a token: %v", err)
	}
	if !shown.Vouches(key, "oslo", "u1") {
		t.Error("a voucher does not hold")
	}
	if NewVoucher(key, "oslo", "u1").ID == v.ID {
		t.Error("two vouchers have one ID, by which an agent tells that it may join anew")
	}
	for what, holds := range map[string]bool{
		"another name":  shown.Vouches(key, "lima", "u1"),
		"another UID":   shown.Vouches(key, "oslo", "u2"),
		"another key":   shown.Vouches(other, "oslo", "u1"),
		"a token":       NewToken().Vouches(key, "oslo", "u1"),
		"names shifted": shown.Vouches(key, "oslou", "1"),
		"another ID":    Token{ID: NewToken().ID, secret: v.secret}.Vouches(key, "oslo", "u1"),
	} {
		if holds {
			t.Errorf("%s: the voucher holds", what)
		}
	}
}
