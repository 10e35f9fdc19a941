# Stops a script whose WORK folder holds results of other settings: what is finished there is not done again.

# same_settings WORK SETTINGS [ENCODER]: the first call in a folder stores the settings, and the files of the encoder.
same_settings() {
  local file="$1/$(basename "$0" .sh).settings" now="$2"
  [ $# -lt 3 ] || now+=" encoder=$(python -c 'import sys; from sparta.models.resolve import encoder_identity as i; print(i(sys.argv[1]))' "$3")"
  [ -f "$file" ] || printf '%s\n' "$now" > "$file"
  [ "$(cat "$file")" = "$now" ] && return
  printf '%s was started with:\n  %s\nnot with:\n  %s\nChoose another folder, or repeat the first settings.\n' \
    "$1" "$(cat "$file")" "$now" >&2
  exit 1
}
