# What a script of this folder was started with: what is finished is not done again, so nothing of it may change.

# same_settings WORK SETTINGS ENCODER: stop if WORK holds results of other settings or of another encoder.
same_settings() {
  local now
  now="$2 encoder=$(python -c 'import sys; from sparta.models.resolve import encoder_identity as i; print(i(sys.argv[1]))' "$3")"
  [ -f "$1/settings" ] || printf '%s\n' "$now" > "$1/settings"
  [ "$(cat "$1/settings")" = "$now" ] && return
  printf '%s was started with:\n  %s\nnot with:\n  %s\nChoose another folder, or repeat the first settings.\n' \
    "$1" "$(cat "$1/settings")" "$now" >&2
  exit 1
}
