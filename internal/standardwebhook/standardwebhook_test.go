package standardwebhook

import (
	"errors"
	"strings"
	"testing"
)

// The signature is that of the example of Standard Webhooks.
func TestSignatureOfTheSpecification(t *testing.T) {
	key, err := ParseKey([]byte(" whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw\n"))
	if err != nil {
		t.Fatal(err)
	}
	if got := SignRequest(key, "msg_p5jXN8AQM9LWM0D4loKWxJek", "1614265330", []byte(`{"test": 2432232314}`)); got != "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=" {
		t.Errorf("the signature is %s", got)
	}
}

func TestKeysThatAreRefused(t *testing.T) {
	for value, want := range map[string]error{
		"": ErrShort, "fifteen letters": ErrShort, "sixteen letters!": nil, "whsec_%%%": ErrNotBase64, "whsec_c2hvcnQ=": ErrShort,
	} {
		if _, err := ParseKey([]byte(value)); !errors.Is(err, want) || err != nil && strings.Contains(err.Error(), "fifteen") {
			t.Errorf("%q: %v, want %v", value, err, want)
		}
	}
}
