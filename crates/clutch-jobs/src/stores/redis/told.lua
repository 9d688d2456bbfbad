return told
